/*
 * A tour of ZooKeeper's C client.  It prints what it sees, a fact on a line, and the test judges it.
 *
 *   tour HOST:PORT/CHROOT calls    every call in turn, then close the session
 *   tour HOST:PORT/CHROOT watch    watches four nodes, then prints events until its standard input ends
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

static const int WAIT_S_MAX = 30;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_connected;
static int answers_count;
static int events_count;

static const char *event_name(int type)
{
    if (type == ZOO_CREATED_EVENT) return "created";
    if (type == ZOO_DELETED_EVENT) return "deleted";
    if (type == ZOO_CHANGED_EVENT) return "changed";
    if (type == ZOO_CHILD_EVENT) return "child";
    if (type == ZOO_NOTWATCHING_EVENT) return "not watching";
    return "other";
}

static const char *state_name(int state)
{
    if (state == ZOO_CONNECTED_STATE) return "connected";
    if (state == ZOO_CONNECTING_STATE) return "connecting";
    if (state == ZOO_EXPIRED_SESSION_STATE) return "expired";
    if (state == ZOO_AUTH_FAILED_STATE) return "auth failed";
    return "other";
}

/* The session's own watcher: states only. */
static void on_session(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle, (void)path, (void)context;
    if (type != ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&mutex);
    is_connected = state == ZOO_CONNECTED_STATE;
    printf("state %s\n", state_name(state));
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* A watch on a node. */
static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle, (void)state, (void)context;
    if (type == ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&mutex);
    printf("event %s %s\n", event_name(type), path);
    events_count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(const int *count, int least)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WAIT_S_MAX;
    pthread_mutex_lock(&mutex);
    while (*count < least) {
        if (pthread_cond_timedwait(&changed, &mutex, &deadline) == ETIMEDOUT) {
            printf("waited too long\n");
            exit(1);
        }
    }
    pthread_mutex_unlock(&mutex);
}

static void say(const char *what, int rc)
{
    printf("%s: %s\n", what, rc == ZOK ? "ok" : zerror(rc));
}

static void creates(zhandle_t *zh)
{
    char path[256];
    struct Stat stat;
    say("create", zoo_create(zh, "/node", "data", 4, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path));
    printf("  path %s\n", path);
    say("create again", zoo_create(zh, "/node", "data", 4, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path));
    say("create orphan", zoo_create(zh, "/no/parent", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, path,
        sizeof path));
    say("create sequence", zoo_create(zh, "/node/s-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE,
        path, sizeof path));
    printf("  path %s\n", path);
    say("create2 ephemeral", zoo_create2(zh, "/node/e-", "xyz", 3, &ZOO_OPEN_ACL_UNSAFE,
                                         ZOO_EPHEMERAL | ZOO_SEQUENCE, path, sizeof path, &stat));
    printf("  path %s length %d owned %s\n", path, stat.dataLength,
           stat.ephemeralOwner == zoo_client_id(zh)->client_id ? "by us" : "by others");
    say("create below ephemeral", zoo_create(zh, "/node/e-0000000001/x", "", 0,
        &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path));
    say("create container", zoo_create2_ttl(zh, "/container", "", 0, &ZOO_OPEN_ACL_UNSAFE,
        ZOO_CONTAINER, -1, path, sizeof path, &stat));
    say("create with ttl", zoo_create2_ttl(zh, "/ttl", "", 0, &ZOO_OPEN_ACL_UNSAFE,
        ZOO_PERSISTENT_WITH_TTL, 60000, path, sizeof path, &stat));
    say("create null", zoo_create(zh, "/null", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path));
}

static void reads_and_writes(zhandle_t *zh)
{
    char buffer[64];
    int length = sizeof buffer;
    struct Stat stat;
    struct String_vector children = {0, NULL};
    say("get", zoo_get(zh, "/node", 0, buffer, &length, &stat));
    printf("  %.*s version %d children %d\n", length, buffer, stat.version, stat.numChildren);
    length = sizeof buffer;
    say("get null", zoo_get(zh, "/null", 0, buffer, &length, &stat));
    printf("  length %d\n", length);
    say("get nothing", zoo_get(zh, "/nothing", 0, buffer, &length, &stat));
    say("exists", zoo_exists(zh, "/node", 0, &stat));
    say("exists not", zoo_exists(zh, "/nothing", 0, &stat));
    say("set", zoo_set2(zh, "/node", "more data", 9, 0, &stat));
    printf("  version %d length %d\n", stat.version, stat.dataLength);
    say("set late", zoo_set(zh, "/node", "", 0, 0));
    say("children", zoo_get_children2(zh, "/node", 0, &children, &stat));
    printf("  count %d cversion %d\n", children.count, stat.cversion);
    deallocate_String_vector(&children);
    say("delete full", zoo_delete(zh, "/node", -1));
    say("delete late", zoo_delete(zh, "/null", 3));
    say("delete", zoo_delete(zh, "/null", 0));
}

static void watches(zhandle_t *zh)
{
    char buffer[64];
    int length = sizeof buffer;
    struct Stat stat;
    struct String_vector children = {0, NULL};
    say("watch what is not", zoo_wexists(zh, "/w", on_event, NULL, &stat));
    say("create watched", zoo_create(zh, "/w", "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    wait_for(&events_count, 1);
    say("watch data", zoo_wget(zh, "/w", on_event, NULL, buffer, &length, &stat));
    say("set watched", zoo_set(zh, "/w", "2", 1, -1));
    wait_for(&events_count, 2);
    say("watch children", zoo_wget_children(zh, "/w", on_event, NULL, &children));
    deallocate_String_vector(&children);
    say("create child", zoo_create(zh, "/w/c", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    wait_for(&events_count, 3);
    say("watch to remove", zoo_wexists(zh, "/w", on_event, NULL, &stat));
    say("remove watch", zoo_remove_watches(zh, "/w", ZWATCHTYPE_DATA, on_event, NULL, 0));
    say("remove none", zoo_remove_watches(zh, "/w", ZWATCHTYPE_DATA, on_event, NULL, 0));
    say("watch child", zoo_wexists(zh, "/w/c", on_event, NULL, &stat));
    say("delete child", zoo_delete(zh, "/w/c", -1));
    wait_for(&events_count, 4);
}

static void multis(zhandle_t *zh)
{
    char created[256], sequence[256];
    struct Stat stat;
    zoo_op_t ops[5];
    zoo_op_result_t results[5];
    zoo_create_op_init(&ops[0], "/m", "m", 1, &ZOO_OPEN_ACL_UNSAFE, 0, created, sizeof created);
    zoo_create_op_init(&ops[1], "/m/s-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, sequence, sizeof sequence);
    zoo_set_op_init(&ops[2], "/m", "mm", 2, 0, &stat);
    zoo_check_op_init(&ops[3], "/m", 1);
    zoo_delete_op_init(&ops[4], "/m/s-0000000000", -1);
    say("multi", zoo_multi(zh, 5, ops, results));
    printf("  %s %s version %d\n", created, sequence, stat.version);
    zoo_set_op_init(&ops[0], "/m", "never", 5, -1, &stat);
    zoo_check_op_init(&ops[1], "/m", 77);
    zoo_delete_op_init(&ops[2], "/m", -1);
    say("multi that fails", zoo_multi(zh, 3, ops, results));
    printf("  results %d %d %d\n", results[0].err, results[1].err, results[2].err);
    say("and nothing was done", zoo_exists(zh, "/m", 0, &stat));
    printf("  length %d\n", stat.dataLength);
}

static void on_auth(int rc, const void *context)
{
    (void)context;
    pthread_mutex_lock(&mutex);
    say("auth", rc);
    answers_count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void acls(zhandle_t *zh)
{
    char buffer[64];
    int length = sizeof buffer;
    struct Stat stat;
    struct ACL_vector acl;
    say("creator unknown", zoo_create(zh, "/mine", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    zoo_add_auth(zh, "digest", "ann:secret", 10, on_auth, NULL);
    wait_for(&answers_count, 1);
    say("creator known", zoo_create(zh, "/mine", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    say("get acl", zoo_get_acl(zh, "/mine", &acl, &stat));
    printf("  count %d perms %d %s %s\n", acl.count, acl.data[0].perms, acl.data[0].id.scheme,
        acl.data[0].id.id);
    deallocate_ACL_vector(&acl);
    say("set acl late", zoo_set_acl(zh, "/mine", 5, &ZOO_READ_ACL_UNSAFE));
    say("set acl", zoo_set_acl(zh, "/mine", 0, &ZOO_READ_ACL_UNSAFE));
    say("get still", zoo_get(zh, "/mine", 0, buffer, &length, &stat));
    say("set no more", zoo_set(zh, "/mine", "", 0, -1));
    say("set acl no more", zoo_set_acl(zh, "/mine", -1, &ZOO_OPEN_ACL_UNSAFE));
}

static int out_of_order;

static void on_set(int rc, const struct Stat *stat, const void *context)
{
    pthread_mutex_lock(&mutex);
    /* The version says which of the writes this is; the context, which was asked for. */
    if (rc != ZOK || stat->version != (int)(long)context || answers_count != (int)(long)context) out_of_order++;
    answers_count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void pipeline(zhandle_t *zh)
{
    long number;
    say("create target", zoo_create(zh, "/p", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    answers_count = 1;
    for (number = 1; number <= 500; number++) zoo_aset(zh, "/p", "x", 1, -1, on_set, (void *)number);
    wait_for(&answers_count, 501);
    printf("500 writes in flight: %d out of order\n", out_of_order);
}

static void away(zhandle_t *zh)
{
    char buffer[64];
    int length = sizeof buffer;
    struct Stat stat;
    struct String_vector children = {0, NULL};
    zoo_wget(zh, "/changed", on_event, NULL, buffer, &length, &stat);
    zoo_wexists(zh, "/created", on_event, NULL, &stat);
    zoo_wexists(zh, "/deleted", on_event, NULL, &stat);
    zoo_wget_children(zh, "/children", on_event, NULL, &children);
    deallocate_String_vector(&children);
    zoo_create(zh, "/ephemeral", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0);
    printf("watching\n");
    while (getchar() != EOF) continue;
    length = sizeof buffer;
    say("get at the end", zoo_get(zh, "/changed", 0, buffer, &length, &stat));
    printf("  %.*s\n", length, buffer);
}

int main(int argc, char **argv)
{
    zhandle_t *zh;
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(0);
    zh = zookeeper_init(argv[1], on_session, 30000, NULL, NULL, 0);
    if (zh == NULL) return 3;
    wait_for(&is_connected, 1);
    if (strcmp(argv[2], "watch") == 0) {
        away(zh);
    } else {
        creates(zh);
        reads_and_writes(zh);
        watches(zh);
        multis(zh);
        acls(zh);
        pipeline(zh);
    }
    say("close", zookeeper_close(zh));
    return 0;
}
