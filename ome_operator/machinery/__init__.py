"""What any operator needs: a work queue, stores of facts, audits, permits, metrics, health. No word of our domain."""
