// Prints the health that Argo CD's own Lua gives to objects. Each line of stdin is {"script": ..., "object": ...}; each
// line of stdout is {"status": ..., "message": ...}.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var line struct {
			Script string          `json:"script"`
			Object json.RawMessage `json:"object"`
		}
		if err := in.Decode(&line); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(line.Object); err != nil {
			log.Fatal(err)
		}
		health, err := (lua.VM{}).ExecuteHealthLua(object, line.Script)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(health); err != nil {
			log.Fatal(err)
		}
	}
}
