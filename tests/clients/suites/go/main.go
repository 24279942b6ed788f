// The Go driver, newest, as the inventory of a warehouse uses it.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "login" {
		if err := probeLogins(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	client, err := mongo.Connect(options.Client().
		ApplyURI(os.Getenv("FROND_URI")).
		SetAppName("inventory").
		SetServerSelectionTimeout(patience))
	if err != nil {
		fmt.Println("not ok 1 -", err)
		os.Exit(1)
	}
	tests := slices.Concat(documents, writes, around, tools)
	if slices.Contains(os.Args[1:], "oplog") {
		tests = slices.Concat(dumping, tailing)
	}
	code := runAll(client, tests)
	_ = client.Disconnect(context.Background())
	os.Exit(code)
}
