"""What an advisor is worth: advisors x fusions x seeds trained side by side, compared pair by pair."""
