"""Where the journal lies: the store's interface, SQLite behind it, and the group commit that feeds it."""
