"""Personal data kept out of prompts, histories and memory."""
