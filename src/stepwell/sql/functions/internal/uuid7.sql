-- A version 7 uuid: 48 bits of milliseconds and 12 bits of their fraction, so that ids grow with time. Postgres 18 has
-- a function for it. Before, it is one expression, which Postgres inlines.
do $do$
begin
  if current_setting('server_version_num')::integer >= 180000 then
    execute $f$
      create or replace function stepwell.uuid7() returns uuid
      language sql volatile parallel safe
      as 'select pg_catalog.uuidv7()'
    $f$;
  else
    execute $f$
      create or replace function stepwell.uuid7() returns uuid
      language sql volatile parallel safe
      as $$
        select (
          overlay(
            lpad(to_hex((extract(epoch from clock_timestamp()) * 4096000)::bigint), 15, '0') placing '7' from 13 for 0
          ) || substr(gen_random_uuid()::text, 20)
        )::uuid
      $$
    $f$;
  end if;
end
$do$;
