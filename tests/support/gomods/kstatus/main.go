// Prints, for each object that it reads from stdin as a line of JSON, how kstatus interprets the object: a line of JSON
// with the results of both kstatus libraries, that of kubernetes-sigs/cli-utils and that of Flux, which Helm 4 uses, too.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"

	flux "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigs "sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var line json.RawMessage
		if err := in.Decode(&line); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(line); err != nil {
			log.Fatal(err)
		}
		one, err := sigs.Compute(object)
		if err != nil {
			log.Fatal(err)
		}
		other, err := flux.Compute(object)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(map[string]string{
			"sigs": string(one.Status), "flux": string(other.Status), "message": one.Message,
		}); err != nil {
			log.Fatal(err)
		}
	}
}
