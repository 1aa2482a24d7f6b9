"""Programs that run, load, compare or measure the product: no tests of one part."""
