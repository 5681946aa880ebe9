"""What a service manager and the daemon tell each other: systemd's protocol of environment variables, datagrams and descriptors.

Owns that protocol (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3)). Where no manager asked for it, all of it is silent.
Does not own unit files (`dhpd.service`), nor what is listened on (`dhpd.server.listeners`).
"""
