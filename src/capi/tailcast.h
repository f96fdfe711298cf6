/* tailcast for C, and for every language that calls C: the producer and the consumer.
 *
 *   tailcast_producer_options options = TAILCAST_PRODUCER_OPTIONS_INIT;
 *   options.cell = "10.0.0.7:7400";
 *   options.stream = "flights";
 *   tailcast_producer* producer;
 *   if (tailcast_producer_open(&options, &producer) != TAILCAST_OK) {
 *     fprintf(stderr, "%s\n", tailcast_last_error());
 *     return 1;
 *   }
 *   tailcast_producer_publish(producer, 0, "hello", 5, NULL, 0, NULL, NULL);
 *   tailcast_producer_close(producer, 10000);
 *   tailcast_producer_free(producer);
 *
 * Errors. What can fail returns a tailcast_code, and TAILCAST_OK if it did not. Then
 * tailcast_last_error() says to a person what was wrong, where, and what to do: it is the message
 * of the last call on the same thread that failed. A null pointer where the comment does not allow
 * one is TAILCAST_INVALID_ARGUMENT. What a call fills in it fills in only when it returns
 * TAILCAST_OK, unless its comment says more.
 *
 * Threads. A producer is used by any number of threads at once. A consumer is used by one at a
 * time; a call that finds another one inside is TAILCAST_FAILED_PRECONDITION. Callbacks run on a
 * thread of the library: they return soon, and call nothing of this header that waits (publish,
 * flush, close, free). Freeing a handle ends its callbacks. Handles do not survive fork().
 *
 * Strings are UTF-8 and end in 0; those that come from the library belong to it and live as long as
 * the comment says. Payloads are any bytes. Times are microseconds since 1970, spans milliseconds.
 *
 * Versions. Structures begin with their size, which the _INIT macros set: members are only ever
 * added at the end, 0 meaning what was done before they came, so a program works with every later
 * library of the same TAILCAST_ABI_VERSION. An incompatible change raises that number and the name
 * of the library (libtailcast.so.2). Structures without a size never change within a version. */
#ifndef TAILCAST_CAPI_TAILCAST_H_
#define TAILCAST_CAPI_TAILCAST_H_

#include <stddef.h>
#include <stdint.h>

/* C++ has a library of its own (tailcast/producer/producer.h); this header is C in both. */
/* NOLINTBEGIN(modernize-*, readability-identifier-naming, performance-enum-size) */

#if defined(__GNUC__)
#define TAILCAST_EXPORT __attribute__((visibility("default")))
#else
#define TAILCAST_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TAILCAST_ABI_VERSION 2

/* TAILCAST_ABI_VERSION of the library: a program that loads it by hand compares. */
TAILCAST_EXPORT int32_t tailcast_abi_version(void);
/* "0.1.0", of the library. For ever. */
TAILCAST_EXPORT const char* tailcast_version(void);

/* --- Errors */

/* What a program should do; new codes may come. Values as gRPC's. */
typedef int32_t tailcast_code;
enum {
  TAILCAST_OK = 0,
  TAILCAST_CANCELLED = 1,           /* the caller gave up */
  TAILCAST_INVALID_ARGUMENT = 3,    /* correct what was given */
  TAILCAST_DEADLINE_EXCEEDED = 4,   /* no answer in time; the outcome is not known */
  TAILCAST_NOT_FOUND = 5,           /* no such name */
  TAILCAST_ALREADY_EXISTS = 6,      /* somebody created it before */
  TAILCAST_PERMISSION_DENIED = 7,   /* not allowed */
  TAILCAST_RESOURCE_EXHAUSTED = 8,  /* a limit is reached: slow down */
  TAILCAST_FAILED_PRECONDITION = 9, /* mend something first, then try again */
  TAILCAST_ABORTED = 10,            /* lost a race: redo from the top */
  TAILCAST_OUT_OF_RANGE = 11,       /* a position that does not exist, or does not any more */
  TAILCAST_UNIMPLEMENTED = 12,      /* not possible here */
  TAILCAST_INTERNAL = 13,           /* a bug of tailcast's */
  TAILCAST_UNAVAILABLE = 14,        /* try again */
  TAILCAST_DATA_LOSS = 15           /* bytes contradict each other: stop and alert */
};
/* "NotFound". For ever; "?" for a code that this library does not know. */
TAILCAST_EXPORT const char* tailcast_code_name(tailcast_code code);
/* Until the next call on this thread that fails. "" before the first. */
TAILCAST_EXPORT const char* tailcast_last_error(void);

/* --- Positions: the same place in every cell */

typedef struct tailcast_position {
  uint64_t stream; /* incarnation of the stream */
  int64_t number;  /* messages of the shard before the place */
  int64_t byte;    /* bytes of the shard before the place */
  int32_t shard;
} tailcast_position;

/* Room for every position as text. */
#define TAILCAST_POSITION_TEXT_SIZE 96
/* Writes the position as people and programs keep it, "t1.9f3a00c2d1e4b576.3.16842.17251200". */
TAILCAST_EXPORT tailcast_code tailcast_position_to_text(const tailcast_position* position,
                                                        char text[TAILCAST_POSITION_TEXT_SIZE]);
/* TAILCAST_INVALID_ARGUMENT: not exactly what tailcast_position_to_text writes. */
TAILCAST_EXPORT tailcast_code tailcast_position_from_text(const char* text,
                                                          tailcast_position* position);

/* --- Headers: what goes with a payload, for whoever does not look into it */

typedef struct tailcast_header {
  const char* name; /* UTF-8 without control characters; no 0 ends it */
  size_t name_size; /* bytes; 1 to 255 */
  const void* value;
  size_t value_size; /* bytes */
} tailcast_header;

/* --- Process */

/* Shows all that this process counts to Prometheus at http://ADDRESS/metrics, until it ends.
 * `address` is "host:port"; port 0 picks a free one. `port` may be null, else it is filled in.
 *   TAILCAST_FAILED_PRECONDITION  the port is taken, or the process shows its metrics already */
TAILCAST_EXPORT tailcast_code tailcast_serve_metrics(const char* address, int32_t* port);

/* Levels of the lines that the library writes to stderr, "warn" or "info,rpc=off" (levels debug,
 * info, warn, error, off). Default: the environment variable TAILCAST_LOG, or else "info". */
TAILCAST_EXPORT tailcast_code tailcast_set_log_levels(const char* levels);

/* The shard of a key, in [0, shards): the same as of every other tailcast, for ever. `shards` is at
 * least 1, and -1 is returned where it is not. */
TAILCAST_EXPORT int32_t tailcast_shard_of_key(const void* key, size_t size, int32_t shards);

/* --- Producer */

enum {
  TAILCAST_PROFILE_DEFAULT = 0,    /* flushes every 100 ms; lengths are polled every 100 ms */
  TAILCAST_PROFILE_LOW_LATENCY = 1 /* flushes as soon as it can; a doorbell on the lengths */
};

typedef struct tailcast_producer tailcast_producer;

/* 0 and null: the default. */
typedef struct tailcast_producer_options {
  size_t struct_size;
  const char* cell;            /* host:port of the scheduler of the stream's source cell; needed */
  const char* stream;          /* needed */
  const int32_t* shards;       /* to produce; null: all of the stream */
  size_t shard_count;          /* of `shards` */
  int32_t profile;             /* TAILCAST_PROFILE_... */
  int32_t takeover;            /* 1: from a producer that lives */
  int64_t flush_interval_ms;   /* default 100, or as the profile says */
  int64_t flush_bytes;         /* default 1 MiB */
  int64_t buffer_bytes_max;    /* of one shard's messages without acknowledgement; default 32 MiB */
  int64_t buffer_messages_max; /* default 262144 */
  int64_t message_bytes_max;   /* headers included; default 16 MiB */
  int64_t open_timeout_ms;     /* default 30000 */
  int64_t give_up_ms; /* how long a disk that answers with errors is tried; default 60000 */
  /* The disk begins to fail a shard, or the shard is at the limit of its retention: once until it
     works again, or a file finds room at once. May be null. */
  void (*on_trouble)(void* context, tailcast_code code, const char* message);
  void* on_trouble_context;
  /* What publish waits for room, and publish_durably for the outcome, at most; default 60000, 7
   * days are the most. */
  int64_t publish_timeout_ms;
} tailcast_producer_options;
#define TAILCAST_PRODUCER_OPTIONS_INIT                                                             \
  {                                                                                                \
    sizeof(tailcast_producer_options), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, \
        0                                                                                          \
  }

enum {
  TAILCAST_DURABLE = 0, /* on disk: every consumer gets it, whatever crashes */
  TAILCAST_FAILED = 1,  /* not in the stream, and never will be; it may be published again */
  TAILCAST_UNKNOWN = 2  /* it may be in the stream: the producer stopped before it knew */
};

/* What became of a message. `code` and `error`, as those of a call that failed, for the outcomes
 * but TAILCAST_DURABLE. */
typedef struct tailcast_ack {
  int32_t outcome;
  tailcast_code code;
  tailcast_position position; /* TAILCAST_DURABLE: where the message begins */
  const char* error;          /* never null */
} tailcast_ack;

/* `ack` lives as long as the call. On a thread of the library. */
typedef void (*tailcast_on_ack)(void* context, const tailcast_ack* ack);

typedef struct tailcast_producer_stats {
  size_t struct_size;
  int64_t messages, bytes;          /* accepted; headers included */
  int64_t durable, failed, unknown; /* acknowledged */
  int64_t buffered_bytes;           /* not acknowledged */
} tailcast_producer_stats;
#define TAILCAST_PRODUCER_STATS_INIT \
  { sizeof(tailcast_producer_stats), 0, 0, 0, 0, 0, 0 }

/*   TAILCAST_NOT_FOUND            no such stream
 *   TAILCAST_INVALID_ARGUMENT     an option that is none; the last error names it
 *   TAILCAST_UNAVAILABLE          nobody answers at `cell`
 *   TAILCAST_PERMISSION_DENIED    the cell's folder or key can't be used
 *   TAILCAST_FAILED_PRECONDITION  another producer lives: the message says for how long and what to
 *                                 do; or the cell is not the stream's source */
TAILCAST_EXPORT tailcast_code tailcast_producer_open(const tailcast_producer_options* options,
                                                     tailcast_producer** producer);
/* Closes without waiting, if that was not done, and frees. Null is nothing to free. No other thread
 * is inside a call. */
TAILCAST_EXPORT void tailcast_producer_free(tailcast_producer* producer);

/* Publishes; payload and headers are copied. Waits only while the shard's buffer is full, for
 * publish_timeout_ms at most: TAILCAST_RESOURCE_EXHAUSTED, and the last error says what stands
 * against it. Headers take at most 65535 bytes, with 3 for each, and count as bytes of the message;
 * null: none. TAILCAST_OK: `on_ack` will be called exactly once, in any order among messages; it
 * may be null, and the stats count what came of the message. */
TAILCAST_EXPORT tailcast_code tailcast_producer_publish(tailcast_producer* producer, int32_t shard,
                                                        const void* payload, size_t size,
                                                        const tailcast_header* headers,
                                                        size_t header_count, tailcast_on_ack on_ack,
                                                        void* context);
/* The same, and TAILCAST_RESOURCE_EXHAUSTED instead of waiting. */
TAILCAST_EXPORT tailcast_code tailcast_producer_try_publish(
    tailcast_producer* producer, int32_t shard, const void* payload, size_t size,
    const tailcast_header* headers, size_t header_count, tailcast_on_ack on_ack, void* context);
/* Publishes and waits for the outcome, for publish_timeout_ms at most: it is not known after that.
 * TAILCAST_OK: durable, and `position`, which may be null, is where it begins. Else `unknown`,
 * which may be null, is 1 if the message may yet be in the stream, and 0 if it never will be. */
TAILCAST_EXPORT tailcast_code
tailcast_producer_publish_durably(tailcast_producer* producer, int32_t shard, const void* payload,
                                  size_t size, const tailcast_header* headers, size_t header_count,
                                  tailcast_position* position, int32_t* unknown);
/* The shard of a key among all shards of the stream; -1 for null. */
TAILCAST_EXPORT int32_t tailcast_producer_shard_of(const tailcast_producer* producer,
                                                   const void* key, size_t size);
/* How many shards it produces; fills in the first `capacity` of them. */
TAILCAST_EXPORT size_t tailcast_producer_shards(const tailcast_producer* producer, int32_t* shards,
                                                size_t capacity);
/* Waits until all that was published before is acknowledged, whatever the outcomes.
 * TAILCAST_DEADLINE_EXCEEDED, or the error of a shard that stopped. */
TAILCAST_EXPORT tailcast_code tailcast_producer_flush(tailcast_producer* producer,
                                                      int64_t timeout_ms);
/* Flushes, ends the shard's files and stops. Safe to call again. */
TAILCAST_EXPORT tailcast_code tailcast_producer_close(tailcast_producer* producer,
                                                      int64_t timeout_ms);
/* TAILCAST_OK while all shards work; else why the first of them stopped. */
TAILCAST_EXPORT tailcast_code tailcast_producer_status(const tailcast_producer* producer);
TAILCAST_EXPORT tailcast_code tailcast_producer_get_stats(const tailcast_producer* producer,
                                                          tailcast_producer_stats* stats);

/* --- Consumer */

enum {
  TAILCAST_FABRIC_AUTO = 0, /* shared memory on the cache's own host, else RDMA, else tcp */
  TAILCAST_FABRIC_SHM = 1,
  TAILCAST_FABRIC_TCP = 2,
  TAILCAST_FABRIC_VERBS = 3 /* RDMA */
};

typedef struct tailcast_consumer tailcast_consumer;

/* 0 and null: the default. */
typedef struct tailcast_consumer_options {
  size_t struct_size;
  const char* cell;      /* host:port of the scheduler of the consumer's own cell; needed */
  const char* stream;    /* needed */
  const int32_t* shards; /* to read; null: all of the stream */
  size_t shard_count;    /* of `shards` */
  int32_t profile;       /* TAILCAST_PROFILE_... */
  int32_t fabric;        /* TAILCAST_FABRIC_... */
  /* "beginning" (the default), "end", "time:2013-01-31T12:00:00Z", "time:-5m", "number:100", or a
   * position. Where shards begin that `resume` does not name. */
  const char* start;
  const tailcast_position* resume; /* of a shard each; null: none */
  size_t resume_count;
  int64_t rate_bytes_per_s; /* of each shard; default 400 MB/s, -1: no limit */
  int64_t batch_bytes_max;  /* about how much one poll gives; default 1 MiB */
  int64_t open_timeout_ms;  /* default 30000 */
  /* Under which name `tailcast status` shows this consumer and how far it is, as long as it polls:
   * up to 100 bytes of UTF-8, one line; null: it is not shown. */
  const char* report_as;
} tailcast_consumer_options;
#define TAILCAST_CONSUMER_OPTIONS_INIT \
  { sizeof(tailcast_consumer_options), NULL, NULL, NULL, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, NULL }

typedef struct tailcast_message {
  const void* payload;
  size_t size;
  int64_t time_us;                /* when it was published, by its producer's clock */
  tailcast_position position;     /* where it begins; position.number is the message's number */
  const tailcast_header* headers; /* in the order in which they were published */
  size_t header_count;
  int64_t next_byte; /* bytes of the shard up to its end */
} tailcast_message;

enum {
  TAILCAST_LOCATING = 0, /* finding where to begin */
  TAILCAST_WAITING = 1,  /* where to begin, or what comes next, is not in the cell yet */
  TAILCAST_TAILING = 2,  /* messages flow */
  TAILCAST_QUIET = 3,    /* all was given, and the producer's side lives */
  TAILCAST_STUCK = 4,    /* nothing comes, not even a sign of life of the producer's side */
  TAILCAST_STOPPED = 5   /* by an error, which polls return */
};

typedef struct tailcast_shard_status {
  size_t struct_size;
  int32_t state;
  tailcast_code code; /* of the error, if it stopped */
  int64_t lag_bytes;  /* known in the cell and not given yet */
  int64_t as_of_us;   /* the producer had published everything then, by its clock; 0: not known */
  /* The error is TAILCAST_OUT_OF_RANGE, and it is known where the shard begins now. */
  int32_t has_first_available;
  tailcast_position first_available;
} tailcast_shard_status;
#define TAILCAST_SHARD_STATUS_INIT                               \
  {                                                              \
    sizeof(tailcast_shard_status), 0, 0, 0, 0, 0, { 0, 0, 0, 0 } \
  }

typedef struct tailcast_consumer_stats {
  size_t struct_size;
  int64_t messages, bytes;            /* given; headers included */
  int64_t cache_bytes, primary_bytes; /* read of the caches, and of the disks */
} tailcast_consumer_stats;
#define TAILCAST_CONSUMER_STATS_INIT \
  { sizeof(tailcast_consumer_stats), 0, 0, 0, 0 }

/*   TAILCAST_NOT_FOUND         no such stream
 *   TAILCAST_INVALID_ARGUMENT  a shard that the stream has not, a position of another stream, a start
 *   TAILCAST_UNAVAILABLE       nobody answers at `cell` */
TAILCAST_EXPORT tailcast_code tailcast_consumer_open(const tailcast_consumer_options* options,
                                                     tailcast_consumer** consumer);
/* Null is nothing to free. */
TAILCAST_EXPORT void tailcast_consumer_free(tailcast_consumer* consumer);

/* Waits until messages are there, at most so long, and gives them: `messages` is an array of
 * `count` in memory of the consumer's, with their payloads and headers, valid until the next call
 * of poll, seek or free. TAILCAST_OK with none: the time is up. Messages of a shard come in order,
 * each once. An error is of one shard, and is returned again until that is sought elsewhere:
 *   TAILCAST_OUT_OF_RANGE  what was to come is not kept any more (tailcast_shard_status says what is)
 *   TAILCAST_DATA_LOSS     bytes fail their check sums everywhere
 *   TAILCAST_NOT_FOUND     the stream was deleted */
TAILCAST_EXPORT tailcast_code tailcast_consumer_poll(tailcast_consumer* consumer,
                                                     int64_t timeout_ms,
                                                     const tailcast_message** messages,
                                                     size_t* count);
/* Behind the last message that poll gave of the shard, or where it begins. TAILCAST_UNAVAILABLE:
 * not known yet. */
TAILCAST_EXPORT tailcast_code tailcast_consumer_position(tailcast_consumer* consumer, int32_t shard,
                                                         tailcast_position* position);
/* Behind this message: resume here when it was dealt with. */
TAILCAST_EXPORT tailcast_code tailcast_position_behind(const tailcast_message* message,
                                                       tailcast_position* position);
/* Goes on elsewhere, also after an error of the shard. `start` as in the options. */
TAILCAST_EXPORT tailcast_code tailcast_consumer_seek(tailcast_consumer* consumer, int32_t shard,
                                                     const char* start);
/* How many shards it reads; fills in the first `capacity` of them. */
TAILCAST_EXPORT size_t tailcast_consumer_shards(tailcast_consumer* consumer, int32_t* shards,
                                                size_t capacity);
TAILCAST_EXPORT tailcast_code tailcast_consumer_shard_status(tailcast_consumer* consumer,
                                                             int32_t shard,
                                                             tailcast_shard_status* status);
TAILCAST_EXPORT tailcast_code tailcast_consumer_get_stats(tailcast_consumer* consumer,
                                                          tailcast_consumer_stats* stats);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*, readability-identifier-naming, performance-enum-size) */

#endif /* TAILCAST_CAPI_TAILCAST_H_ */
