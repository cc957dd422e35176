"""Several processes and devices. Real processes are started here, so most tests are slow."""
