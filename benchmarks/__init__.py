"""Programs that measure the accuracy and speed of the project. README.md lists them."""
