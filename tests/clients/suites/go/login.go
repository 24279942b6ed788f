package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A connection string, and what came of it, as login.py describes them.
type login struct {
	Name  string   `json:"name"`
	URI   string   `json:"uri,omitempty"`
	Users []string `json:"users,omitempty"`
	Error string   `json:"error,omitempty"`
}

// Logs in with each connection string of a file, at the same time.
func probeLogins(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var logins []login
	if err := json.Unmarshal(text, &logins); err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range logins {
		all.Go(func() {
			if err := logins[i].probe(); err != nil {
				logins[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	for _, result := range logins {
		result.URI = ""
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

func (l *login) probe() error {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(l.URI))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	var status struct {
		AuthInfo struct {
			AuthenticatedUsers []struct{ User, DB string } `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	command := bson.D{{Key: "connectionStatus", Value: 1}}
	if err := client.Database("own").RunCommand(ctx, command).Decode(&status); err != nil {
		return err
	}
	err = client.Database("own").Collection("c").FindOne(ctx, bson.D{}).Err()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return err
	}
	for _, user := range status.AuthInfo.AuthenticatedUsers {
		l.Users = append(l.Users, user.User+"@"+user.DB)
	}
	return nil
}
