// Produces lines, or prints what it consumes, as the tests' other clients do.
'use strict'
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const [does, servers, topic, groupId] = process.argv.slice(2)
const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 1000 }
const kafka = new Kafka({ brokers: servers.split(','), logLevel: logLevel.ERROR, retry })

async function produce() {
  const producer = kafka.producer({ idempotent: true, retry })
  await producer.connect()
  let sent = Promise.resolve()
  let messages = []
  const send = async () => {
    const batch = messages
    messages = []
    if (batch.length) await producer.send({ topic, messages: batch })
  }
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [key, value] = line.split('\t')
    messages.push({ key, value })
    sent = sent.then(send)
  }
  await sent
  await producer.disconnect()
}

async function consume() {
  const consumer = kafka.consumer({ groupId, retry })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message: { offset, key, value } }) => {
      process.stdout.write(`Partition:${partition}\tOffset:${offset}\t${key}\t${value}\n`)
    },
  })
}

const work = does === 'consume' ? consume : produce
work().catch((error) => {
  console.error(error)
  process.exit(1)
})
