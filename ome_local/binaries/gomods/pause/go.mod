module ome.io/local/pause

go 1.24.0
