"""`python -m bench.scale` runs the simulation alone."""

from bench.scale import main

main()
