"""What a runner may do at all, and what that costs."""
