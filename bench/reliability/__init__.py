"""Three numbers about take-overs: how soon, how much is done twice, and how often without need."""
