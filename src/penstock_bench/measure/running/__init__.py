"""The processes of a run: host, drivers, sinks, and the controller that leads them; series of runs."""
