-- The error of the last attempt of a live job that is tried again; null: it has none.
create or replace function stepwell.last_error(_id uuid, _attempt integer, _finished_at timestamptz) returns text
language plpgsql stable
as $$
begin
  if _attempt = 0 or _finished_at is not null then
    return null;
  end if;
  return (
    select left(concat_ws(': ', f.type, nullif(f.message, '')), 1000)
    from stepwell.failure f
    where f.job_id = _id and f.expires_at > stepwell.now()
    order by f.epoch desc
    limit 1
  );
end
$$;
