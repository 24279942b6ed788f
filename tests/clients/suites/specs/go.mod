// Pins the Go driver of the first major version, whose module carries its own files of tests.
module frond/clients/specs

go 1.25.0

require go.mongodb.org/mongo-driver v1.17.10
