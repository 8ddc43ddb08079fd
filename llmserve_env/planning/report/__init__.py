"""The report of a task on one page: `gather.py` simulates what it says, `page.py` writes it down."""
