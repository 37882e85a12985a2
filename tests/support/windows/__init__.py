"""What a Windows of its own would be, as far as Linux can show it: modules and calls hidden, and `msvcrt.locking` over real locks."""
