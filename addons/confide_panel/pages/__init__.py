"""The pages: functions of a `PageContext` that return a page, or handle one of its forms."""
