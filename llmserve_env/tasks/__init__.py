"""Tasks: versioned problems as data. `catalog.load_task` finds them, `task.Task` is what they say."""
