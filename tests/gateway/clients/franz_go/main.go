// Command franz_go produces lines, or prints what it consumes, as the tests' other clients do.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	does, servers, topic := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	options := []kgo.Opt{kgo.SeedBrokers(servers...), kgo.MetadataMinAge(100 * time.Millisecond)}
	if does == "consume" {
		options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(os.Args[4]))
	} else {
		options = append(options, kgo.DefaultProduceTopic(topic))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if does == "consume" {
		consume(client)
	} else {
		produce(client)
	}
}

func produce(client *kgo.Client) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, value, _ := bytes.Cut(bytes.Clone(lines.Bytes()), []byte("\t"))
		client.Produce(context.Background(), &kgo.Record{Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func consume(client *kgo.Client) {
	for {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			fmt.Printf("Partition:%d\tOffset:%d\t%s\t%s\n", record.Partition, record.Offset, record.Key, record.Value)
		})
	}
}
