"""What stands between a machine and its daemon: relays that cut and record, reverse proxies, and strangers who keep to no rule."""
