-- Refuse a transaction at an isolation level that hides concurrent commits. A job that ends must see all its steps, a
-- job that is about to wait must see the latest events, and a new partition must receive all rows of its day.
create or replace function stepwell.check_isolation(_what text default 'a change of a job with steps') returns void
language plpgsql stable
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = format('stepwell: %s needs a transaction at read committed: use another connection', _what);
  end if;
end
$$;
