"""Many videos, and long ones, on more than one machine: a plan as data, its units of work, and a batch on Ray."""
