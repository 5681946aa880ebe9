"""dhpd as a service: what it tells the service manager, the units, the container, and how it is installed."""
