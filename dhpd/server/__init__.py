"""The only place that knows sockets, signals, files beside the store, and clocks."""
