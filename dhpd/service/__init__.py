"""dhpd as a service of systemd: `dhpd service install`, `uninstall` and `status`.

Owns the unit files and what becomes of them on a machine. Does not own what a running daemon and systemd tell each other
(`dhpd.systemd`), nor any setting of the daemon's (`dhpd.config`).
"""
