"""The sections of a configuration, every key declared once; `jaxtrade.config` puts them together."""
