"""What an agent reads to learn how to hand work off: `SKILL.md`, beside this file."""
