-- Refuse texts above the limit in stepwell.size_limit. No limit is below 64 kB, so smaller arrays pass without a
-- lookup. Callers on a hot path check pg_column_size first.
create or replace function stepwell.check_sizes(_name text, _texts text[]) returns void
language plpgsql stable
as $$
declare
  _largest bigint;
  _most bigint;
begin
  -- plpgsql expands its array parameters, so this is the size in memory, whether or not the stored value is compressed.
  if _texts is null or pg_column_size(_texts) <= 65536 then
    return;
  end if;
  select max(octet_length(t.text)) into _largest from unnest(_texts) as t (text);
  if _largest > 65536 then
    select l.bytes into _most from stepwell.size_limit l where l.name = _name;
    if _largest > coalesce(_most, 65536) then
      -- Clients find the value by these two fields.
      raise exception using errcode = '22SW5', column = _name, detail = _largest::text,
        message = format(
          'stepwell: %s of %s bytes, and this database accepts %s: store the data elsewhere and pass a reference, or '
          'have the owner of the schema run "stepwell limits set %1$s %4$s"',
          _name, _largest, coalesce(_most, 65536),
          case
            when _largest <= 983040 then ceil(_largest / 65536.0) * 64 || 'kB' else ceil(_largest / 1048576.0) || 'MB'
          end
        );
    end if;
  end if;
end
$$;
