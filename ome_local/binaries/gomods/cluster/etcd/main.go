// etcd's server. The package that etcd has for it would be built under the name of its folder, `server`.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
