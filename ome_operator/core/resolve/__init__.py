"""From the names in a service to everything that its revision is made of, or to the reasons why that cannot be had."""
