"""Groups that fail come back as a whole: which pods have to go when a rank is lost or hangs, and when none (decisions 8)."""
