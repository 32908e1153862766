module ome.io/tests/kindnetd

go 1.24.0
