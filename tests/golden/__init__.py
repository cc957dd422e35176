"""Tests born from bugs that an earlier project's environments had (IntradayJules): one file for each, G1 to G14."""
