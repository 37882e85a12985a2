"""The process beside the daemon that copies and proves, and how it is told what to do."""
