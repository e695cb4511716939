"""The processes of a run and who leads them: host, drivers, sinks, controller; series of runs."""
