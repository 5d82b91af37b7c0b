"""What the local Kafka and the local schema registry share: downloads, processes, their state."""
