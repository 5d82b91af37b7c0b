// One broker of kfake, franz-go's own implementation of Kafka. Arguments: the folder for its data,
// and its port.
package main

import (
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	_, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
