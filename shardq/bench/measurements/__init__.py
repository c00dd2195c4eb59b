"""The measurements, each a function of a stage and a load that gives a sample."""
