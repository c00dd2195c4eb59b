-- Functions and operators that fail, under the names of those that are built in, in the schema {0}. They have the same
-- arguments, or some that fit better: a built-in unnest() takes an array of any type, and no operator is `bigint % integer`.
-- Tables that hold nothing have the names of the server's and of shardq's.
CREATE SCHEMA {0};
CREATE FUNCTION {0}.make(name text, arguments text) RETURNS void LANGUAGE plpgsql AS $make$
BEGIN
    EXECUTE format(
        'CREATE FUNCTION {0}.%I(%s) RETURNS bigint LANGUAGE plpgsql AS $f$BEGIN RAISE EXCEPTION %L; END$f$',
        name, arguments, name || ' of a foreign schema'
    );
END $make$;

DO $do$
DECLARE
    types oid[] := ARRAY[
        'int2', 'int4', 'int8', 'numeric', 'text', 'name', 'uuid', 'bytea', 'bool', 'timestamptz', 'interval', 'oid'
    ]::regtype[]::oid[];
    made record;
BEGIN
    FOR made IN
        SELECT o.oprname AS name, l::regtype::text AS l, r::regtype::text AS r, row_number() OVER () AS n
        FROM (SELECT DISTINCT oprname FROM pg_operator WHERE oprname ~ '^[-+*/%<>=|]+$') AS o,
            unnest(types) AS l, unnest(types) AS r
    LOOP
        PERFORM {0}.make('operator_' || made.n, made.l || ', ' || made.r);
        EXECUTE format(
            'CREATE OPERATOR {0}.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = {0}.operator_%s)',
            made.name, made.l, made.r, made.n
        );
    END LOOP;
    FOR made IN
        SELECT DISTINCT proname::text AS name, oidvectortypes(proargtypes) AS arguments FROM pg_proc
        WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset AND provariadic = 0
        AND prorettype <> 'internal'::regtype
        AND NOT EXISTS (SELECT FROM unnest(proargtypes) AS t JOIN pg_type ON pg_type.oid = t WHERE typtype = 'p')
        UNION
        SELECT name, t::regtype::text || suffix
        FROM unnest(ARRAY['unnest', 'array_agg', 'count', 'min', 'max', 'sum']) AS name,
            unnest(types) AS t, unnest(ARRAY['', '[]']) AS suffix
        UNION VALUES ('count', ''), ('generate_series', 'int, int')
    LOOP
        PERFORM {0}.make(made.name, made.arguments);
    END LOOP;
    FOR made IN
        SELECT unnest(ARRAY[
            'pg_class', 'pg_namespace', 'pg_settings', 'pg_index', 'pg_stat_user_tables', 'pg_stat_activity',
            'meta', 'queue', 'shard', 'slice', 'key', 'consumer', 'text', 'uuid', 'bytea'
        ]) AS name
    LOOP
        EXECUTE format('CREATE TABLE {0}.%I (x integer)', made.name);
    END LOOP;
END $do$;
