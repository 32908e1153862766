"""What any operator needs: a work queue, stores of facts, audits, metrics, health. No word of our domain."""
