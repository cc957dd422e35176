"""Find what on this machine would stop, slow down or change a run. Each finding comes with a fix."""
