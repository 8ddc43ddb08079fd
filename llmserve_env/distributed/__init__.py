"""The same training and evaluation on a Ray cluster, where one machine is not enough. Needs the extra [ray]."""
