"""A surrogate of the fleet: the same traffic, observations and dollars, with loads in place of requests.

`replicas` counts replicas by state, `worlds` stacks the traffic of many episodes, `service` turns load into kept
promises and metrics by curves fitted to the engine (`calibration`), and `episodes` plays many episodes side by side.
"""
