"""Groups that fail come back as a whole: who has to go when a rank is lost or hangs, and when nobody has (decisions 8)."""
