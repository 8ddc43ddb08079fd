"""The `llmserve` command: one module per subcommand."""
