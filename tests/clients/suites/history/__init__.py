"""Records histories of transactions, and checks them for anomalies that snapshot isolation forbids."""
